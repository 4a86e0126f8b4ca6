"""What templates of the console can say."""
