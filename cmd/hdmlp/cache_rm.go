package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/store/file"
)

// cacheRmOptions are the options of `hdmlp cache rm`.
type cacheRmOptions struct {
	dir     string
	store   string // beginning of a version; "": all
	all     bool
	json    bool
	confirm func(ctx context.Context, question string) (bool, error) // nil: do not ask
}

func newCacheRmCommand() *cobra.Command {
	var opts cacheRmOptions
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm DIR",
		Short: "Remove the contents of a cache directory",
		Long: `Remove one store (--store) of a cache directory, or everything that HDMLP keeps
in it (--all), including the file that marks it as a cache. Files that are not
HDMLP's are left alone, and so is the directory itself. The command fails if a
running daemon uses the directory.

EXIT STATUS
  0    success
  1    failure, or the question was answered with no
  2    wrong input: neither --store nor --all, no such store, in use by a
       daemon, ...
  130  interrupted`,
		Example: `  hdmlp cache rm /nvme/hdmlp --store 3f07c1
  hdmlp cache rm /nvme/hdmlp --all --yes`,
		Args: oneDirectory("cache rm"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.dir = args[0]
			opts.json, _ = cmd.Flags().GetBool("json")
			if !yes {
				opts.confirm = asker(cmd.InOrStdin(), cmd.ErrOrStderr())
			}
			return runCacheRm(cmd.Context(), opts, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.store, "store", "",
		"remove the store whose version begins with `DIGITS`")
	flags.BoolVar(&opts.all, "all", false,
		"remove all stores, and the file that marks the directory as a cache")
	flags.BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}

// oneDirectory accepts exactly one argument, a directory.
func oneDirectory(command string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return badInput("%s takes one directory, not %d", command, len(args))
		}
		return nil
	}
}

// asker returns a function that asks a question on the terminal.
func asker(in io.Reader, out io.Writer) func(context.Context, string) (bool, error) {
	return func(ctx context.Context, question string) (bool, error) {
		if f, ok := in.(*os.File); !ok || !isTerminal(f) {
			return false, badInput("nothing was removed: standard input is not a terminal " +
				"on which to ask for confirmation; give --yes")
		}
		fmt.Fprintf(out, "%s [y/N] ", question)
		answer := make(chan string, 1)
		go func() { // ends with the process if there is no answer
			line, _ := bufio.NewReader(in).ReadString('\n')
			answer <- line
		}()
		select {
		case line := <-answer:
			line = strings.ToLower(strings.TrimSpace(line))
			return line == "y" || line == "yes", nil
		case <-ctx.Done():
			fmt.Fprintln(out)
			return false, ctx.Err()
		}
	}
}

// removedView is what `hdmlp cache rm --json` prints.
type removedView struct {
	Dir     string   `json:"dir"`
	Removed []string `json:"removed"` // versions
	Bytes   int64    `json:"bytes"`
	// Kept lists directories of stores that contain files that are not HDMLP's.
	Kept []string `json:"kept"`
}

// runCacheRm removes stores.
func runCacheRm(ctx context.Context, opts cacheRmOptions, out io.Writer) (err error) {
	if opts.all && opts.store != "" {
		return badInput("--all and --store are mutually exclusive; give one of them")
	}
	c, err := lockCache(opts.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	stores, err := cacheStores(c)
	if err != nil {
		return err
	}
	question := fmt.Sprintf("remove the whole cache in %s (%s)?", human.Name(opts.dir),
		count(len(stores), "store"))
	switch {
	case opts.store != "":
		s, err := findStore(opts.dir, stores, opts.store)
		if err != nil {
			return err
		}
		stores = []file.StoreInfo{*s}
		question = fmt.Sprintf("remove %s from %s?", storeText(s), human.Name(opts.dir))
	case !opts.all:
		return badInput("nothing was removed from %s: give --all, or --store and a version%s",
			opts.dir, storeList(stores))
	}
	if opts.confirm != nil {
		switch yes, err := opts.confirm(ctx, question); {
		case err != nil:
			return err
		case !yes:
			return errors.New("nothing was removed")
		}
	}
	v, err := removeStores(ctx, c, opts, stores)
	if opts.json {
		return errors.Join(err, printJSON(out, v))
	}
	fmt.Fprintf(out, "removed %s, %s, from %s\n", count(len(v.Removed), "store"),
		byteSize(float64(v.Bytes)), human.Name(opts.dir))
	for _, kept := range v.Kept {
		fmt.Fprintf(out, "kept %s: it contains files that are not HDMLP's\n", human.Name(kept))
	}
	return err
}

// removeStores removes these stores and, with opts.all, the marker. The marker goes last, so that
// after a failure the directory is still a cache and the command can be repeated.
func removeStores(ctx context.Context, c *file.Cache, opts cacheRmOptions,
	stores []file.StoreInfo,
) (*removedView, error) {
	v := &removedView{Dir: opts.dir, Removed: []string{}, Kept: []string{}}
	for _, s := range stores {
		if err := ctx.Err(); err != nil {
			return v, err
		}
		version := versionText(s.Fingerprint)
		kept, err := c.Remove(s.Fingerprint)
		if err != nil {
			return v, cacheError(err)
		}
		v.Removed = append(v.Removed, version)
		v.Bytes += s.HeldBytes
		if kept {
			v.Kept = append(v.Kept, filepath.Join(opts.dir, version))
		}
	}
	if opts.all {
		return v, c.RemoveMarker()
	}
	return v, nil
}
