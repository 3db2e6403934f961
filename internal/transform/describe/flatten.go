package describe

import (
	"encoding/json"
	"errors"
)

// Flatten returns the entries of a list whose elements may be lists, or the only entry.
func Flatten(given json.RawMessage) (entries []map[string]json.RawMessage, err error) {
	var list []json.RawMessage
	if json.Unmarshal(given, &list) != nil || list == nil {
		var entry map[string]json.RawMessage
		if err := json.Unmarshal(given, &entry); err != nil || entry == nil {
			return nil, errors.Join(errors.New("no object"), err)
		}
		return []map[string]json.RawMessage{entry}, nil
	}
	for _, one := range list {
		inner, err := Flatten(one)
		if err != nil {
			return nil, err
		}
		entries = append(entries, inner...)
	}
	return entries, nil
}
