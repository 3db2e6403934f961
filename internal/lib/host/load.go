package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Load returns how many tasks of the machine ran or wanted to run, on average over the last minute.
func Load() (float64, error) {
	const file = "/proc/loadavg"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return load, nil
}
