package main

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
)

// splitURL returns where a URL leads: objects, if it ends with a pattern or with a name that files
// of a kind have, or else all below it.
func splitURL(text string) given {
	scheme, rest, _ := strings.Cut(text, "://")
	head := rest
	if special := strings.IndexAny(rest, "*?[{"); special >= 0 {
		head = rest[:special]
	}
	cut := strings.LastIndexByte(head, '/') + 1
	name := rest[cut:]
	known := slices.ContainsFunc(sources(), func(k source.Kind) bool {
		return slices.ContainsFunc(k.Names, func(p string) bool { return matches(p, path.Base(name)) })
	})
	if cut == 0 || name == "" || head == rest && !known {
		return given{text: text, dir: strings.TrimSuffix(text, "/")}
	}
	return given{
		text: text, dir: scheme + "://" + strings.TrimSuffix(rest[:cut], "/"),
		name: objects.Called(text, name),
	}
}

// kindOfURL returns the kind that the objects directly below a URL are of.
func kindOfURL(ctx context.Context, at string) (source.Kind, error) {
	v, err := ownView(ctx, at)
	if err != nil {
		return source.Kind{}, err
	}
	place, err := objects.ByURL(places(), at)
	if err != nil {
		return source.Kind{}, badInput("%s: %w", human.Name(objects.Shown(at)), err)
	}
	o, err := place.Open(at, v)
	if err != nil {
		return source.Kind{}, badInput("%s: %w", human.Name(objects.Shown(at)), err)
	}
	defer o.Close() //nolint:errcheck // it was only listed
	const looked = 1000
	found := sources()[0]
	enough, n := errors.New("enough"), 0
	err = o.List(ctx, "", func(object source.Object) error {
		for _, k := range sources() {
			if len(k.Names) > 0 && matches(k.Names[0], object.Name) {
				found = k
				return enough
			}
		}
		if n++; n == looked {
			return enough
		}
		return nil
	})
	switch {
	case errors.Is(err, enough):
		return found, nil
	case errors.Is(err, source.ErrUnavailable):
		return found, err
	case err != nil:
		return found, badInput("%w; give names of objects, or say with --kind what it is", err)
	}
	return found, nil
}

// commonURL returns what URLs have in common, up to a slash.
func commonURL(urls []string) (string, error) {
	scheme, _, _ := strings.Cut(urls[0], "://")
	paths := make([]string, len(urls))
	for i, u := range urls {
		s, rest, ok := strings.Cut(u, "://")
		if !ok || s != scheme {
			return "", badInput("%s and %s are in different places: give those of one",
				human.Name(urls[0]), human.Name(u))
		}
		paths[i] = "/" + rest
	}
	root := commonDirectory(paths)
	if root == "/" {
		return "", badInput("%s are in different buckets or on different servers: give those of one",
			human.And(urls))
	}
	return scheme + "://" + strings.TrimPrefix(root, "/"), nil
}

// anyURL reports whether one of the texts is a URL.
func anyURL(texts []string) bool { return slices.ContainsFunc(texts, option.IsURL) }
