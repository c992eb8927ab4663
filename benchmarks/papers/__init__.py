"""The tables of two papers, measured anew: the methods of this library beside what was printed."""
