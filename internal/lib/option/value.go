package option

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// Allowed returns, in words, which values the option takes.
func (o Option) Allowed() string {
	var text string
	switch o.Kind {
	case Size:
		text = human.Allowed
		if o.Min > 1 {
			text += ", at least " + human.Format(o.Min)
		}
	case Int:
		text = fmt.Sprintf("a whole number from %d to %d", o.Min, o.Max)
	case Duration:
		text = fmt.Sprintf(`a duration such as "30s", "500ms" or "2m" `+
			"(a plain number is seconds), from %s to %s",
			shortDuration(time.Duration(o.Min)), shortDuration(time.Duration(o.Max)))
	case Enum:
		text = human.List(o.Values)
	case Switch:
		text = "on or off"
	case Path:
		text = `an absolute path, or one that begins with "~/"`
	case Address:
		text = `an address such as "127.0.0.1:9400" or ":9400"`
	case Text:
		text = fmt.Sprintf("text of at most %d bytes; empty: none", o.Max)
	case Network:
		text = `an interface ("eth0"), address, network ("10.1.0.0/16") or name of this host`
	case List:
		text = "texts with commas between them"
	}
	if (o.Kind == Path || o.Kind == Address || o.Kind == Network) && o.Default == "" && !o.Required {
		text += "; empty: none"
	}
	if o.Default == Auto {
		text += fmt.Sprintf("; %q: %s", Auto, o.Derived)
	}
	return text
}

// shortDuration formats d without trailing zero units: "24h", not "24h0m0s".
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Read parses a value as JSON or TOML has it, or a text. It returns the value, nil for Auto, and
// the text that a user would write for it. Its error is an *Error. A value that is out of range is
// returned together with its error.
func (o Option) Read(given any) (value any, text string, err error) {
	text, scalar := TextOf(given)
	fault := errors.New("not a single value")
	if scalar {
		if o.IsAuto(text) {
			return nil, text, nil
		}
		value, fault = o.parse(text)
	}
	if fault != nil {
		err = &Error{
			Key: o.Key, Value: text, Wrong: fault.Error(), Allowed: o.Allowed(), Err: fault,
		}
	}
	return value, text, err
}

// IsAuto reports whether text asks for the derived or measured value, if the option has one.
func (o Option) IsAuto(text string) bool {
	return o.Default == Auto && strings.EqualFold(strings.TrimSpace(text), Auto)
}

// parse parses text. Its error says only what is wrong.
func (o Option) parse(text string) (any, error) {
	text = strings.TrimSpace(text)
	switch o.Kind {
	case Size:
		n, err := parseSize(text)
		if err != nil {
			return nil, err
		}
		return n, o.inRange(n)
	case Int:
		n, err := parseInt(text)
		if err != nil {
			return nil, err
		}
		return int(n), o.inRange(n)
	case Duration:
		d, err := parseDuration(text)
		if err != nil {
			return nil, err
		}
		return d, o.inRange(int64(d))
	case Switch:
		return parseSwitch(text)
	case List:
		return splitList(text), nil
	}
	return o.parseString(text)
}

func parseSize(text string) (int64, error) {
	n, err := human.Parse(text)
	switch {
	case errors.Is(err, human.ErrRange):
		return 0, fmt.Errorf("larger than %d bytes", int64(math.MaxInt64))
	case errors.Is(err, human.ErrFraction):
		return 0, fmt.Errorf("%w: add a unit, as in %q", human.ErrFraction, text+"GB")
	case err != nil:
		return 0, errors.New("not a size")
	}
	return n, nil
}

func parseInt(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) && n < 0:
		return 0, errors.New("too small")
	case errors.Is(err, strconv.ErrRange):
		return 0, errors.New("too large")
	case err != nil:
		return 0, errors.New("not a whole number")
	}
	return n, nil
}

func parseSwitch(text string) (any, error) {
	switch text {
	case "on", "true":
		return true, nil
	case "off", "false":
		return false, nil
	}
	return nil, errors.New("neither on nor off")
}

func splitList(text string) []string {
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

func (o Option) inRange(n int64) error {
	switch {
	case n < o.Min && o.Kind == Size && o.Min == 1:
		return errors.New("not more than 0")
	case n < o.Min && o.Kind == Size:
		return fmt.Errorf("less than %s", human.Format(o.Min))
	case n < o.Min:
		return errors.New("too small")
	case o.Max > 0 && n > o.Max:
		return errors.New("too large")
	}
	return nil
}

func (o Option) parseString(text string) (string, error) {
	switch {
	case o.Kind == Enum && o.Parse != nil:
		return o.Parse(text)
	case o.Kind == Enum:
		if !slices.Contains(o.Values, text) {
			return "", errors.New("unknown value" + human.Nearest(text, o.Values))
		}
	case text == "":
	case o.Kind == Text && int64(len(text)) > o.Max:
		return "", fmt.Errorf("%d bytes long", len(text))
	case o.Kind == Path:
		return parsePath(text)
	case o.Kind == Address:
		_, port, err := net.SplitHostPort(text)
		if err != nil {
			return "", errors.New("not host:port")
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return "", errors.New("not a port from 0 to 65535")
		}
	case o.Kind == Network && strings.ContainsFunc(text, unicode.IsSpace):
		return "", errors.New("contains white space")
	}
	return text, nil
}

// NoURL is what is said of a URL in the place of a path.
const NoURL = "a URL, and HDMLP uses directories of file systems: mount what it names, for " +
	"example with rclone mount, and give the directory"

var url = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// IsURL reports whether a text names something by its scheme, such as "s3://bucket/key".
func IsURL(text string) bool { return url.MatchString(text) }

func parsePath(text string) (string, error) {
	if IsURL(text) {
		return "", errors.New(NoURL)
	}
	if rest, ok := strings.CutPrefix(text, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("the home directory is unknown: %w", err)
		}
		text = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(text) {
		return "", errors.New("not an absolute path")
	}
	if strings.ContainsRune(text, 0) {
		return "", errors.New("contains a zero byte")
	}
	return filepath.Clean(text), nil
}

func parseDuration(text string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if !(math.Abs(seconds) < math.MaxInt64/float64(time.Second)) {
			return 0, errors.New("not a duration")
		}
		return time.Duration(seconds * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		return 0, errors.New("not a duration")
	}
	return d, nil
}

// TextOf formats a JSON or TOML value as a user would write it in an environment variable. scalar
// is false for lists, tables and the like; text then describes the value.
func TextOf(value any) (text string, scalar bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int:
		return strconv.Itoa(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case fmt.Stringer: // json.Number, dates
		return v.String(), true
	}
	text = fmt.Sprint(value)
	if strings.Contains(text, "map[") { // a table, or one in a list
		text = "a table"
		if list, ok := value.([]any); ok {
			text = fmt.Sprintf("a list of %d", len(list))
		}
	}
	return text, false
}
