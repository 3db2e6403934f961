package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/objects"
	"github.com/hdmlp/hdmlp/internal/source/objects/credentials"
)

func newCredentialsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "credentials URL",
		Short: "Show how this process reaches a URL, and which keys it has",
		Long: `Show what the environment of this process says about a URL: the endpoint and
region of the store, proxies, and the keys that requests are signed with, of
which only the last characters are shown.

Keys are looked for where Amazon's tools look: in AWS_ACCESS_KEY_ID and the
variables beside it, in profiles (AWS_PROFILE, ~/.aws), by a credential_process,
by web identity, and in the roles of containers and instances. A job does the
same, in its own process: the daemon has no keys but those of the jobs.

VARIABLES
  AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL   the store, if it is not Amazon's
  AWS_REGION                              its region; by default it is asked
  AWS_SKIP_SIGNATURE=true                 for a public bucket: no keys
  AWS_REQUEST_PAYER=requester             agree to pay for requests
  AWS_VIRTUAL_HOSTED_STYLE_REQUEST=false  HOST/BUCKET instead of BUCKET.HOST
  AWS_CA_BUNDLE                           certificates that are trusted as well
  HTTPS_PROXY, HTTP_PROXY, NO_PROXY       proxies

With --json it prints all of it, with the keys: for the process of a job, which
passes it to the daemon.

EXIT STATUS
  0  success
  2  no keys were found, the URL is of a kind that HDMLP does not read, ...`,
		Example: `  hdmlp credentials s3://my-bucket/train`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badInput("credentials takes one URL, such as s3://bucket/prefix")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := accessTo(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
				return source.WriteAccess(cmd.OutOrStdout(), a)
			}
			printAccess(cmd.OutOrStdout(), args[0], a, time.Now())
			return nil
		},
	}
}

// accessTo returns how this process reaches a URL.
func accessTo(ctx context.Context, url string) (*source.Access, error) {
	if !option.IsURL(url) {
		return nil, badInput("%s is no URL, such as s3://bucket/prefix", human.Name(objects.Shown(url)))
	}
	place, err := objects.ByURL(places(), url)
	if err != nil {
		return nil, badInput("%s: %w", human.Name(objects.Shown(url)), err)
	}
	a, err := credentials.Find(ctx, place.Signed)
	switch {
	case err != nil && errors.Is(err, ctx.Err()):
		return nil, err
	case err != nil:
		return nil, badInput("%s: %w", human.Name(objects.Shown(url)), err)
	}
	return a, nil
}

// ownView returns a dataset at a URL as this process sees it; nil of a path.
func ownView(ctx context.Context, path string) (*source.View, error) {
	if !option.IsURL(path) {
		return nil, nil
	}
	a, err := accessTo(ctx, path)
	if err != nil {
		return nil, err
	}
	v := &source.View{Access: a}
	v.Renew = func(ctx context.Context) (*source.View, error) {
		again, err := accessTo(ctx, path)
		return &source.View{Access: again}, err
	}
	return v, nil
}

func printAccess(w io.Writer, at string, a *source.Access, now time.Time) {
	line := func(what, text, none string) {
		if text == "" {
			text = none
		}
		fmt.Fprintf(w, "%-15s %s\n", what, human.Text(text)) //nolint:errcheck // to the terminal
	}
	line("URL", at, "")
	if place, _ := objects.ByURL(places(), at); place.Signed {
		line("endpoint", a.Endpoint, "Amazon's")
		line("region", a.Region, "the store is asked")
		line("bucket in URLs", map[string]string{
			"path": "https://HOST/BUCKET", "virtual": "https://BUCKET.HOST",
		}[a.Style], "as is usual at the endpoint")
		line("keys", keysText(a, now), "")
		if a.RequesterPays {
			line("requests", "this user agrees to pay for them", "")
		}
	}
	line("HTTPS proxy", redacted(a.HTTPSProxy), "none")
	line("HTTP proxy", redacted(a.HTTPProxy), "none")
	line("certificates", map[bool]string{true: "those given, and the system's"}[a.Authorities != ""],
		"the system's")
}

// redacted returns a URL without its password.
func redacted(text string) string {
	if u, err := url.Parse(text); err == nil {
		return u.Redacted()
	}
	return "(no URL)"
}

// keysText describes keys without showing them.
func keysText(a *source.Access, now time.Time) string {
	if a.Keys == nil {
		return a.Found
	}
	const shown = 4
	id := a.Keys.ID
	text := "..." + id[max(0, len(id)-shown):] + ", from " + a.Found
	if !a.Keys.Expires.IsZero() {
		text += fmt.Sprintf(", which expire in %v", a.Keys.Expires.Sub(now).Round(time.Second))
	}
	return text
}
