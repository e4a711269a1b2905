"""The servers of one machine: started, watched, deployed to, looked over and copied."""
