package storageclass

import "fmt"

// LimitError refuses a room that a class cannot have.
type LimitError struct {
	What  string // what was asked for, and of which class: "a store in /nvme/cache"
	Need  int64  // bytes
	Limit int64  // bytes: the most that could be had
	Hint  string // what a user can do; may be empty
}

func (e *LimitError) Error() string {
	text := fmt.Sprintf("%s: %s needed, at most %s can be had", e.What, Bytes(e.Need), Bytes(e.Limit))
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Bytes writes a number of bytes for people: "512 bytes", "23.1 GiB".
func Bytes(n int64) string {
	if n > -1024 && n < 1024 {
		return fmt.Sprintf("%d bytes", n)
	}
	value := float64(n)
	for _, unit := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		value /= 1024
		if (value < 1023.95 && value > -1023.95) || unit == "PiB" {
			return fmt.Sprintf("%.1f %s", value, unit)
		}
	}
	return ""
}
