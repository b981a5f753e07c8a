from openworld.cli import main

main()
