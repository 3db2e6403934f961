package main

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// object sends an object, or a range of it: what it is when it is no longer held.
func (s *server) object(w http.ResponseWriter, r *http.Request, name string) {
	if held, ok := s.held.Load(name); ok && r.Method != http.MethodHead {
		select {
		case <-held.(chan struct{}):
		case <-r.Context().Done():
			return
		}
	}
	f, err := os.Open(filepath.Join(s.root, filepath.FromSlash("/"+name)))
	var info fs.FileInfo
	if err == nil {
		defer f.Close() //nolint:errcheck // it was only read
		info, err = f.Stat()
	}
	if err != nil || !info.Mode().IsRegular() {
		fail(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	w.Header().Set("ETag", etag(info))
	w.Header().Set("Content-Type", "application/octet-stream")
	if r.Method == http.MethodHead {
		s.count(func(c *counts) { c.Heads++ })
	} else {
		s.count(func(c *counts) { c.Gets++ })
	}
	slow := &limited{ResponseWriter: w, server: s, ctx: r.Context(), name: name}
	http.ServeContent(slow, r, "", info.ModTime(), f)
}

// etag identifies what a file has.
func etag(info fs.FileInfo) string {
	return fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size())
}

// limited is a response that is sent at the server's bandwidth, and counted.
type limited struct {
	http.ResponseWriter
	server *server
	ctx    context.Context
	name   string
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), piece)]
		if l.server.drip > 0 {
			part = p[:1]
		}
		if l.server.limit != nil {
			if err := l.server.limit.WaitN(l.ctx, len(part)); err != nil {
				return n, err
			}
		}
		k, err := l.ResponseWriter.Write(part)
		n += k
		l.server.count(func(c *counts) {
			c.Bytes += int64(k)
			c.Objects[l.name] += int64(k)
		})
		if err != nil {
			return n, err
		}
		if p = p[k:]; l.server.drip > 0 && !l.drip() {
			return n, l.ctx.Err()
		}
	}
	return n, nil
}

// drip sends what was written, and pauses. It reports whether the asker is still there.
func (l *limited) drip() bool {
	if f, ok := l.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
	select {
	case <-time.After(l.server.drip):
		return true
	case <-l.ctx.Done():
		return false
	}
}

// ReadFrom hides that of the response, which would not be limited.
func (l *limited) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{l}, r)
}

type listedObject struct {
	Key, LastModified, ETag string
	Size                    int64
}

type listResult struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	Name, Prefix          string
	EncodingType          string `xml:",omitempty"`
	KeyCount, MaxKeys     int
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
	Contents              []listedObject
}

type locationResult struct {
	XMLName xml.Name `xml:"LocationConstraint"`
}

// list sends a page of a listing.
func (s *server) list(w http.ResponseWriter, r *http.Request) {
	s.count(func(c *counts) { c.Lists++ })
	q := r.URL.Query()
	prefix, after := q.Get("prefix"), q.Get("start-after")
	if token := q.Get("continuation-token"); token != "" {
		after = token
	}
	found := listResult{Name: s.bucket, Prefix: prefix, MaxKeys: s.page}
	encode := func(name string) string { return name }
	if found.EncodingType = q.Get("encoding-type"); found.EncodingType == "url" {
		encode = url.QueryEscape
	}
	if n, err := strconv.Atoi(q.Get("max-keys")); err == nil && n > 0 {
		found.MaxKeys = min(n, s.page)
	}
	names, err := s.names()
	if err != nil {
		fail(w, http.StatusInternalServerError, "InternalError")
		return
	}
	first, _ := slices.BinarySearch(names, max(prefix, after+"\x00"))
	for _, name := range names[first:] {
		if !strings.HasPrefix(name, prefix) {
			break
		}
		if len(found.Contents) == found.MaxKeys {
			found.IsTruncated = true
			break
		}
		one, err := s.describe(name)
		if err != nil {
			continue // removed meanwhile
		}
		one.Key = encode(name)
		found.Contents = append(found.Contents, one)
		found.NextContinuationToken = name
	}
	if !found.IsTruncated {
		found.NextContinuationToken = ""
	}
	found.KeyCount = len(found.Contents)
	answer(w, found)
}

// describe returns what a listing says of an object, but for its name.
func (s *server) describe(name string) (listedObject, error) {
	if s.made != nil {
		return listedObject{
			Size: int64(len(name)), ETag: fmt.Sprintf("%q", name),
			LastModified: "2026-01-01T00:00:00.000Z",
		}, nil
	}
	info, err := os.Stat(filepath.Join(s.root, name))
	if err != nil {
		return listedObject{}, err
	}
	return listedObject{
		Size: info.Size(), ETag: etag(info),
		LastModified: info.ModTime().UTC().Format(time.RFC3339Nano),
	}, nil
}

// names returns the names of all objects, sorted by their bytes.
func (s *server) names() (names []string, err error) {
	if s.made != nil {
		return s.made, nil
	}
	err = filepath.WalkDir(s.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(s.root, path)
		names = append(names, filepath.ToSlash(name))
		return err
	})
	slices.Sort(names)
	return names, err
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(w, xml.Header) // the asker may have gone
	_ = xml.NewEncoder(w).Encode(v)
}

// fail answers with an error, as S3 calls it.
func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_ = xml.NewEncoder(w).Encode(struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}{Code: code, Message: http.StatusText(status)})
}
