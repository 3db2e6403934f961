package objects

import (
	"fmt"
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

// ByURL returns the place of a URL.
func ByURL(places []Place, url string) (Place, error) {
	scheme, _, _ := strings.Cut(url, "://")
	var all []string
	for _, p := range places {
		if slices.Contains(p.Schemes, strings.ToLower(scheme)) {
			return p, nil
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
