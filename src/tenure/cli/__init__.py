"""The command line. All printing of Tenure is done here."""
