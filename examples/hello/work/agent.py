"""Simulates an agent: it reads, computes in a child process, writes and commits."""

import hashlib
import subprocess
import urllib.request

numbers = [n * n for n in range(1, 11)]
total = subprocess.run(
    ["sh", "-c", "echo $(( " + " + ".join(map(str, numbers)) + " ))"],
    check=True, capture_output=True, text=True,
).stdout.strip()

with open("report.txt", "w") as report:
    report.write(f"sum of the first ten squares: {total}\n")
print("wrote report.txt:", hashlib.sha256(open("report.txt", "rb").read()).hexdigest())

subprocess.run(["git", "add", "report.txt"], check=True)
subprocess.run(["git", "commit", "-q", "-m", "report"], check=True)

try:  # nothing leaves a sandbox whose policy allows no host
    urllib.request.urlopen("http://203.0.113.7/", timeout=3)
    print("reached the network?!")
except OSError as err:
    print("no network, as it should be:", err)
