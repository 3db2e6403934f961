// Package credentials finds how this process reaches what a URL names: the store's endpoint and
// region, proxies and authorities, and the keys that requests are signed with, as Amazon's own
// tools find them (variables, profiles, credential_process, web identity, instance roles).
//
// It reads the environment and files of the process that it runs in, which is the job's and never
// the daemon's.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"
	"github.com/aws/smithy-go/logging"
	"golang.org/x/net/http/httpproxy"

	"github.com/hdmlp/hdmlp/internal/source"
)

// Timeout is how long finding keys may take: they may come from another process, or over a network.
const Timeout = time.Minute

// Find returns how this process reaches a place whose requests are signed, or not.
func Find(ctx context.Context, signed bool) (*source.Access, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	proxies := httpproxy.FromEnvironment()
	a := &source.Access{
		HTTPProxy: proxies.HTTPProxy, HTTPSProxy: proxies.HTTPSProxy, NoProxy: proxies.NoProxy,
	}
	if !isProxy(a.HTTPProxy) || !isProxy(a.HTTPSProxy) {
		return nil, errors.New("HTTP_PROXY or HTTPS_PROXY is not the URL of a proxy, such as " +
			"http://host:3128")
	}
	for _, name := range []string{"AWS_CA_BUNDLE", "SSL_CERT_FILE"} {
		path := os.Getenv(name)
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		a.Authorities = string(text)
		break
	}
	if !signed {
		return a, nil
	}
	return a, sign(ctx, a)
}

// isProxy reports whether a text is the URL of a proxy, or empty. One that is not would be ignored,
// and requests would be made without it.
func isProxy(text string) bool {
	if text == "" {
		return true
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	return err == nil && u.Hostname() != "" &&
		slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme)
}

// sign sets what concerns stores whose requests are signed.
func sign(ctx context.Context, a *source.Access) error {
	anonymous, err := anySwitch("AWS_SKIP_SIGNATURE", "AWS_NO_SIGN_REQUEST")
	if err != nil {
		return err
	}
	if a.RequesterPays, err = anySwitch("AWS_REQUEST_PAYER"); err != nil {
		return err
	}
	if a.Style, err = style(); err != nil {
		return err
	}
	c, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
	if err != nil {
		return fmt.Errorf("the configuration of AWS: %w", err)
	}
	a.Region = c.Region
	if a.Endpoint, err = endpoint(ctx, &c); err != nil {
		return err
	}
	if anonymous {
		a.Found = "none are used (AWS_SKIP_SIGNATURE)"
		return nil
	}
	found, err := c.Credentials.Retrieve(ctx)
	if err != nil {
		return fmt.Errorf("no keys to sign requests with were found in the environment of this "+
			"process: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the "+
			"instance a role; for a public bucket set AWS_SKIP_SIGNATURE=true (%w)", short(err))
	}
	a.Found = found.Source
	a.Keys = &source.Keys{
		ID: found.AccessKeyID, Secret: found.SecretAccessKey, Token: found.SessionToken,
	}
	if found.CanExpire {
		a.Keys.Expires = found.Expires
		if now := time.Now(); now.After(found.Expires) {
			return fmt.Errorf("the keys from %s have expired, at %s, and it is %s: renew them, and "+
				"check the clock of this machine", found.Source, found.Expires.UTC().Format(time.RFC3339),
				now.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// short returns an error of the SDK without what it says of each attempt, and without what a
// credential_process has written: that may be keys.
func short(err error) error {
	var process *processcreds.ProviderError
	if errors.As(err, &process) {
		why := process.Err
		if inner := errors.Unwrap(why); inner != nil {
			why = inner
		}
		return fmt.Errorf("its credential_process: %w", why)
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	const most = 300
	if len(text) > most {
		text = text[:most] + "..."
	}
	return errors.New(text)
}

// endpoint returns the endpoint that the environment or the profile gives for S3, or for all
// services.
func endpoint(ctx context.Context, c *aws.Config) (string, error) {
	for _, s := range c.ConfigSources {
		if p, ok := s.(interface {
			GetIgnoreConfiguredEndpoints(context.Context) (bool, bool, error)
		}); ok {
			ignored, found, err := p.GetIgnoreConfiguredEndpoints(ctx)
			if err != nil || found && ignored {
				return "", err
			}
		}
	}
	for _, s := range c.ConfigSources {
		p, ok := s.(interface {
			GetServiceBaseEndpoint(context.Context, string) (string, bool, error)
		})
		if !ok {
			continue
		}
		if text, found, err := p.GetServiceBaseEndpoint(ctx, "S3"); err != nil || found {
			return text, err
		}
	}
	return aws.ToString(c.BaseEndpoint), nil
}

// anySwitch reports whether one of the variables is set to what means yes.
func anySwitch(names ...string) (bool, error) {
	for _, name := range names {
		switch text := os.Getenv(name); strings.ToLower(text) {
		case "":
		case "true", "yes", "on", "1", "requester":
			return true, nil
		case "false", "no", "off", "0", "bucketowner":
			return false, nil
		default:
			return false, fmt.Errorf("%s=%s: give true or false", name, text)
		}
	}
	return false, nil
}

// style returns how URLs name a bucket; "": that follows from the endpoint.
func style() (string, error) {
	for _, name := range []string{"AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_VIRTUAL_HOSTING"} {
		if os.Getenv(name) == "" {
			continue
		}
		virtual, err := anySwitch(name)
		if virtual {
			return "virtual", err
		}
		return "path", err
	}
	return "", nil
}
