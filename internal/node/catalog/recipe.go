package catalog

import (
	"slices"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/transform"
)

// Recipe is what the transforms of a job begin with, by field of the samples.
type Recipe struct {
	prefixes []*transform.Prefix // nil: nothing that forms may hold
}

// RecipeOf returns the recipe of prefixes by field, of which nil ones are none; nil: all are.
func RecipeOf(prefixes []*transform.Prefix) cache.Recipe {
	for _, p := range prefixes {
		if p != nil {
			return &Recipe{prefixes}
		}
	}
	return nil
}

// Same implements cache.Recipe.
func (r *Recipe) Same(other cache.Recipe) bool {
	of, ok := other.(*Recipe)
	return ok && slices.EqualFunc(r.prefixes, of.prefixes, func(a, b *transform.Prefix) bool {
		if a == nil || b == nil {
			return a == b
		}
		return a.Recipe == b.Recipe
	})
}

// Bytes implements cache.Recipe.
func (r *Recipe) Bytes() (sum int64) {
	for _, p := range r.prefixes {
		if p != nil {
			sum += p.Bytes()
		}
	}
	return sum
}
