package s3

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects/remote"
)

// FuzzListing has a server list what it likes: the names are in order, below the prefix, and end.
func FuzzListing(f *testing.F) {
	const page = `<ListBucketResult><IsTruncated>true</IsTruncated>` +
		`<NextContinuationToken>t</NextContinuationToken><EncodingType>url</EncodingType>` +
		`<Contents><Key>x/a</Key><Size>1</Size><ETag>"v"</ETag>` +
		`<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>`
	f.Add(page, "x/")
	f.Add(strings.Replace(page, "true", "false", 1), "")
	f.Add(strings.ReplaceAll(page, "x/a", "x/%zz"), "x/")
	f.Add(strings.ReplaceAll(page, "<Size>1</Size>", "<Size>-9</Size>"), "x/")
	f.Add("<ListBucketResult><Contents><Key>y</Key></Contents></ListBucketResult>", "x")
	f.Add("<Error><Code>SlowDown</Code></Error>", "")
	f.Add("<a", "")
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(body))
	}))
	f.Cleanup(server.Close)
	b, err := New(Options{Bucket: "data", Access: &source.Access{
		Endpoint: server.URL, Region: "us-east-1", Style: "path",
	}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = b.Close() })
	f.Fuzz(func(t *testing.T, text, prefix string) {
		body = text
		last := ""
		_ = b.List(t.Context(), prefix, "", func(name string, v remote.Version) error {
			if name <= last || !strings.HasPrefix(name, prefix) || v.Size < 0 {
				t.Errorf("%q of %d bytes after %q, below %q", name, v.Size, last, prefix)
			}
			last = name
			return nil
		})
	})
}
