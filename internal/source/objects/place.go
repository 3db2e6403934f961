package objects

import (
	"errors"
	"fmt"
	neturl "net/url"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/source"
)

// Place describes a kind of place that URLs name. Each is a sub-package that returns its Place, and
// a line in the table of cmd/hdmlp/kinds.go.
type Place struct {
	Schemes []string // of its URLs
	// Signed is set if requests to it are signed with keys.
	Signed bool
	// Open opens the objects below a URL as the view's process reaches them. It makes no request.
	Open func(url string, v *source.View) (Objects, error)
}

// ByURL returns the place of a URL. Its errors do not show the URL, which may have a password.
func ByURL(places []Place, url string) (Place, error) {
	scheme, rest, _ := strings.Cut(url, "://")
	var all []string
	for _, p := range places {
		if slices.Contains(p.Schemes, strings.ToLower(scheme)) {
			return p, check(rest)
		}
		for _, s := range p.Schemes {
			all = append(all, s+"://")
		}
	}
	hint := "; mount what it names, for example with rclone mount, and give the directory"
	if scheme == "gs" || scheme == "gcs" {
		hint = "; Google Cloud Storage is read by its S3 interface: give s3://BUCKET, and set " +
			"AWS_ENDPOINT_URL=https://storage.googleapis.com and an HMAC key"
	}
	return Place{}, fmt.Errorf("HDMLP does not read %s:// (it reads %s)%s", human.Name(scheme),
		strings.Join(all, ", "), hint)
}

// check returns an error for what follows the scheme of a URL, if that is none of objects.
func check(rest string) error {
	host, below, _ := strings.Cut(rest, "/")
	if strings.Contains(host, "@") {
		return errors.New("the URL names a user, and would be written to logs: give it without; keys " +
			"come from the environment of the process")
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(below, "/"), "/") {
		if below != "" && (part == "" || part == "." || part == "..") {
			return fmt.Errorf("the URL has the part %q between slashes: HDMLP reads objects whose names "+
				"have no part that is empty, a dot or two dots", part)
		}
	}
	return nil
}

// Shown returns a URL for messages, without a user and a query: these may be secrets.
func Shown(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return url
	}
	host, below, slash := strings.Cut(rest, "/")
	host = host[strings.LastIndexByte(host, '@')+1:]
	if scheme != "s3" {
		host, _, _ = strings.Cut(host, "?")
		below, _, _ = strings.Cut(below, "?")
	}
	if slash {
		host += "/" + below
	}
	return scheme + "://" + host
}

// Called returns what the object is called that a part of a URL names: those of a web server are
// quoted.
func Called(url, part string) string {
	if name, err := neturl.PathUnescape(part); !strings.HasPrefix(url, "s3://") && err == nil {
		return name
	}
	return part
}
