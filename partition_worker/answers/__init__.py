"""What a worker says to questions: nothing here changes anything. `questions.py` is the way in."""
