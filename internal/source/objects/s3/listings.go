package s3

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects/remote"
)

const (
	// listingHead is within how many bytes a page of a listing says that it is one.
	listingHead = 1024
	// mostListing bounds the bytes of a page: a thousand keys of 1024 bytes, quoted, take less.
	mostListing = 8 << 20
)

// listings makes requests, and checks that pages of listings are some: minio-go takes any XML, such
// as the HTML of a proxy, for the last page.
type listings struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l listings) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusOK || !r.URL.Query().Has("list-type") {
		return response, err
	}
	page := bufio.NewReaderSize(io.LimitReader(response.Body, mostListing), listingHead)
	head, err := page.Peek(listingHead)
	if (err == nil || errors.Is(err, io.EOF)) && !bytes.Contains(head, []byte("ListBucketResult")) {
		_ = response.Body.Close()
		return nil, &remote.Error{Kind: source.ErrUnreadable, Err: errors.New("the server answers a " +
			"request for a listing with something else: check the endpoint, and what is between it " +
			"and this machine")}
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{page, response.Body}
	return response, nil
}
