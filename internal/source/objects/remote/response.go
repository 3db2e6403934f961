package remote

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/source"
)

// AnswerOf returns the answer that a response to a request for a range is. The request was for the
// bytes from offset on. A server that ignores ranges sends the object from its beginning, which is
// an error unless that was asked for.
func AnswerOf(status int, header http.Header, length, offset, n int64) (*Answer, error) {
	a := &Answer{Version: Version{Tag: header.Get("ETag")}, Offset: offset, Length: length}
	a.Modified, _ = http.ParseTime(header.Get("Last-Modified")) // zero: unknown
	switch {
	case status == http.StatusPartialContent:
		sent, err := parseRange(header.Get("Content-Range"))
		if err != nil {
			return nil, &Error{Kind: source.ErrUnreadable, Err: err}
		}
		if a.Length >= 0 && a.Length != sent.length {
			return nil, &Error{Kind: source.ErrUnreadable, Err: fmt.Errorf("the server announces %d "+
				"bytes, and sends %d", sent.length, a.Length)}
		}
		a.Offset, a.Length = sent.offset, sent.length
		a.Size = sent.size
		if a.Length < n && a.Offset+a.Length == a.Size {
			a.Length = -1 // the object is shorter, which the caller finds out
		}
	case length < 0 || offset > 0 || length > n:
		return nil, &Error{Kind: source.ErrUnreadable, Err: errors.New("the server sends whole " +
			"objects where a part was asked for; HDMLP needs one that follows the header Range")}
	default:
		a.Offset, a.Size = 0, length
	}
	return a, nil
}

// contentRange is what a header Content-Range has, in bytes.
type contentRange struct{ offset, length, size int64 }

// parseRange parses a header Content-Range.
func parseRange(text string) (contentRange, error) {
	failed := fmt.Errorf("the server sends the header Content-Range %q", text)
	rest, ok := strings.CutPrefix(text, "bytes ")
	span, total, slash := strings.Cut(rest, "/")
	from, to, dash := strings.Cut(span, "-")
	if !ok || !slash || !dash {
		return contentRange{}, failed
	}
	numbers := [3]int64{}
	for i, s := range []string{from, to, total} {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return contentRange{}, failed
		}
		numbers[i] = n
	}
	r := contentRange{offset: numbers[0], length: numbers[1] + 1 - numbers[0], size: numbers[2]}
	if r.length <= 0 || r.length > r.size-r.offset {
		return contentRange{}, failed
	}
	return r, nil
}

// Refusal returns the error of a response that is none of success. code is what the server calls
// it, or ""; text is what it says besides.
func Refusal(status int, header http.Header, code, text string) *Error {
	e := &Error{Kind: source.ErrUnreadable, Size: -1}
	why := fmt.Sprintf("the server answers %d %s", status, http.StatusText(status))
	if code != "" {
		why += ", " + code
	}
	if text != "" {
		why += ": " + text
	}
	switch {
	case status == http.StatusNotFound || status == http.StatusGone:
		e.Kind = source.ErrMissing
	case status == http.StatusPreconditionFailed:
		e.Kind = source.ErrChanged
	case status == http.StatusRequestedRangeNotSatisfiable:
		e.Kind, e.Beyond = source.ErrShort, true
		if total, ok := strings.CutPrefix(header.Get("Content-Range"), "bytes */"); ok {
			if size, err := strconv.ParseInt(total, 10, 64); err == nil && size >= 0 {
				e.Size = size
			}
		}
	case ForTheMoment(status):
		e.Kind = source.ErrUnavailable
	}
	e.Err = errors.New(why)
	return e
}

// ForTheMoment reports whether a status says that the same request may succeed later.
func ForTheMoment(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return true
	}
	return false
}

// VersionOf returns what the headers of a response for a whole object say of it.
func VersionOf(header http.Header, length int64) Version {
	v := Version{Size: length, Tag: header.Get("ETag")}
	v.Modified, _ = http.ParseTime(header.Get("Last-Modified"))
	return v
}

// Rounded returns a time in whole seconds, as HTTP's headers have it: listings of some stores have
// more digits.
func Rounded(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
