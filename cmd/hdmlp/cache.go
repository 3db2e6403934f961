package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/store"
	"github.com/hdmlp/hdmlp/internal/store/file"
)

func newCacheCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "List, check, remove and fill the contents of cache directories",
		Long: `List, check, remove and fill the contents of cache directories (cache_dir). A
cache directory has one store of samples for each version of a dataset; the
store's version is the fingerprint that hdmlp dataset shows.

EXIT STATUS
  0    success
  1    failure; check: a sample differs from the dataset
  2    wrong input: not a cache directory, no such store, in use by a
       daemon, ...
  130  interrupted`,
		Args: cobra.ArbitraryArgs, // so that RunE, not cobra, reports an unknown command
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return badInput("unknown command %q of cache; `hdmlp cache --help` lists "+
					"the commands", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(withJSON(newCacheLsCommand()), withJSON(newCacheCheckCommand()),
		withJSON(newCacheRmCommand()), withJSON(newCacheWarmCommand()))
	return cmd
}

// shortVersion is the number of hex digits of a version that people are shown.
const shortVersion = 12

func versionText(fingerprint [16]byte) string { return hex.EncodeToString(fingerprint[:]) }

// openCache opens an existing cache directory.
func openCache(dir string) (*file.Cache, error) {
	c, err := file.Existing(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, badInput("%s: there is no such directory", human.Name(dir))
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, badInput("%s is not a directory; give one that was used as cache_dir",
			human.Name(dir))
	}
	return c, cacheError(err)
}

// cacheError marks those errors of a cache as wrong input that the user caused.
func cacheError(err error) error {
	var unsafe *store.UnsafeError
	switch {
	case errors.Is(err, file.ErrInUse):
		return badInput("%w; end the daemon with `hdmlp stop`, or wait until the command that "+
			"uses the directory has ended", err)
	case errors.Is(err, file.ErrNoCache), errors.Is(err, file.ErrNotOurs), errors.As(err, &unsafe):
		return inputError{err}
	}
	return err
}

// lockCache opens a cache directory and keeps daemons away from it.
func lockCache(dir string) (*file.Cache, error) {
	c, err := openCache(dir)
	if err != nil {
		return nil, err
	}
	if err := c.Lock(); err != nil {
		_ = c.Close()
		return nil, cacheError(err)
	}
	return c, nil
}

// cacheStores lists the stores of a cache.
func cacheStores(c *file.Cache) ([]file.StoreInfo, error) {
	stores, err := c.Stores()
	return stores, cacheError(err)
}

// findStore returns the only store whose version begins with these digits.
func findStore(dir string, stores []file.StoreInfo, version string) (*file.StoreInfo, error) {
	var found []*file.StoreInfo
	for i := range stores {
		if version != "" &&
			strings.HasPrefix(versionText(stores[i].Fingerprint), strings.ToLower(version)) {
			found = append(found, &stores[i])
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, badInput("--store %q: no store in %s has a version that begins with it%s",
			version, dir, storeList(stores))
	}
	return nil, badInput("--store %q: the versions of %d stores in %s begin with it%s", version,
		len(found), dir, storeList(stores))
}

// storeList lists stores, for an error.
func storeList(stores []file.StoreInfo) string {
	if len(stores) == 0 {
		return "; the cache has no stores"
	}
	var b strings.Builder
	b.WriteString("; the cache has:")
	for i := range stores {
		fmt.Fprintf(&b, "\n  %s", storeText(&stores[i]))
	}
	return b.String()
}

// storeText describes a store in a few words.
func storeText(s *file.StoreInfo) string {
	return fmt.Sprintf("%s  %s, %s, of %s", versionText(s.Fingerprint), count(s.Held, "sample"),
		byteSize(float64(s.HeldBytes)), storeDataset(s))
}

// storeDataset returns the dataset's path from the store's description.
func storeDataset(s *file.StoreInfo) string {
	if s.Description == nil || s.Description.Path == "" {
		return "an unknown dataset"
	}
	return human.Name(s.Description.Path)
}
