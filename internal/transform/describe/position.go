package describe

import (
	"encoding/json"
	"fmt"
)

// Position returns the position of entry i of a description, which is otherwise unless the entry
// has one, and deletes it from the entry.
func Position(i, otherwise int, entry map[string]json.RawMessage) (int, error) {
	given, there := entry["position"]
	delete(entry, "position")
	if !there {
		return otherwise, nil
	}
	position := -1
	if err := json.Unmarshal(given, &position); err != nil || position < 0 ||
		position > maxPosition {
		return 0, fmt.Errorf(`transforms[%d]: "position" must be a whole number from 0 to %d`, i,
			maxPosition)
	}
	return position, nil
}

// maxPosition is the highest position of an entry in a list.
const maxPosition = 1<<31 - 1
