"""Pictures: timelines, players and explorers. The Python side prepares the numbers, ES modules draw them."""
