package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
)

// Allowed returns, in words, which values the parameter takes.
func (p Parameter) Allowed() string {
	var text string
	switch p.Kind {
	case Size:
		text = human.Allowed
		if p.Min > 1 {
			text += ", at least " + human.Format(p.Min)
		}
	case Int:
		text = fmt.Sprintf("a whole number from %d to %d", p.Min, p.Max)
	case Duration:
		text = fmt.Sprintf(`a duration such as "30s", "500ms" or "2m" `+
			"(a plain number is seconds), from %s to %s",
			shortDuration(time.Duration(p.Min)), shortDuration(time.Duration(p.Max)))
	case Enum:
		text = human.List(p.Values)
	case Switch:
		text = "on or off"
	case Path:
		text = `an absolute path, or one that begins with "~/"`
	case Address:
		text = `an address such as "127.0.0.1:9400" or ":9400"`
	case Text:
		text = fmt.Sprintf("text of at most %d bytes; empty: none", p.Max)
	case Network:
		text = `an interface ("eth0"), address, network ("10.1.0.0/16") or name of this host`
	}
	if (p.Kind == Path || p.Kind == Address || p.Kind == Network) && p.Default == "" {
		text += "; empty: none"
	}
	if p.Default == Auto {
		text += fmt.Sprintf("; %q: %s", Auto, p.Derived)
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

// parse parses text into field, whose type must be the one that the kind requires. Its error says
// only what is wrong; the caller adds key, value and what is allowed.
func (p Parameter) parse(text string, field any) error {
	text = strings.TrimSpace(text)
	switch field := field.(type) {
	case *int64:
		n, err := human.Parse(text)
		if err != nil {
			if errors.Is(err, human.ErrRange) {
				return fmt.Errorf("larger than %d bytes", int64(math.MaxInt64))
			}
			if errors.Is(err, human.ErrFraction) {
				return fmt.Errorf("%w: add a unit, as in %q", human.ErrFraction,
					strings.TrimSpace(text)+"GB")
			}
			return errors.New("not a size")
		}
		*field = n
		return p.inRange(n)
	case *int:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			if errors.Is(err, strconv.ErrRange) {
				if n < 0 {
					return errors.New("too small")
				}
				return errors.New("too large")
			}
			return errors.New("not a whole number")
		}
		*field = int(n)
		return p.inRange(n)
	case *bool:
		switch text {
		case "on", "true":
			*field = true
		case "off", "false":
			*field = false
		default:
			return errors.New("neither on nor off")
		}
		return nil
	case *time.Duration:
		d, err := parseDuration(text)
		if err != nil {
			return err
		}
		*field = d
		return p.inRange(int64(d))
	case *string:
		value, err := p.parseString(text)
		*field = value
		return err
	}
	panic(fmt.Sprintf("config: parameter %s has a field of type %T", p.Key, field))
}

func (p Parameter) inRange(n int64) error {
	switch {
	case n < p.Min && p.Kind == Size && p.Min == 1:
		return errors.New("not more than 0")
	case n < p.Min && p.Kind == Size:
		return fmt.Errorf("less than %s", human.Format(p.Min))
	case n < p.Min:
		return errors.New("too small")
	case p.Max > 0 && n > p.Max:
		return errors.New("too large")
	}
	return nil
}

func (p Parameter) parseString(text string) (string, error) {
	switch {
	case p.Kind == Enum:
		if !slices.Contains(p.Values, text) {
			return "", errors.New("unknown value" + human.Nearest(text, p.Values))
		}
	case text == "":
	case p.Kind == Text && int64(len(text)) > p.Max:
		return "", fmt.Errorf("%d bytes long", len(text))
	case p.Kind == Path:
		return parsePath(text)
	case p.Kind == Address:
		_, port, err := net.SplitHostPort(text)
		if err != nil {
			return "", errors.New("not host:port")
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return "", errors.New("not a port from 0 to 65535")
		}
	case p.Kind == Network && strings.ContainsFunc(text, unicode.IsSpace):
		return "", errors.New("contains white space")
	}
	return text, nil
}

func parsePath(text string) (string, error) {
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

// toText formats a JSON or TOML value as a user would write it in an environment variable. scalar
// is false for lists, tables and the like; text then describes the value.
func toText(value any) (text string, scalar bool) {
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
		text = envfile.Text(value)
	}
	return text, false
}
