"""Behind the tuner: plan, folds that share kernel values, workers, the race, the table."""
