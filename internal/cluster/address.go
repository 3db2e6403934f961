package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Listen listens at host and port of the network, the system's if it is nil, for what. Its error is
// an *AddressError of the node.
func Listen(ctx context.Context, network Network, node int, what, host string,
	port int,
) (l net.Listener, err error) {
	at := net.JoinHostPort(host, strconv.Itoa(port))
	err = patiently(ctx, func() error {
		l, err = orSystem(network).Listen(at)
		return err
	})
	if err != nil {
		return nil, refusal(node, what, at, err)
	}
	return l, nil
}

// overlap is how long what belongs to a job may still be in the hands of the one before it: a
// launcher that starts a job again ends its processes, and does not wait until their daemons have
// ended what they did for them.
const overlap = 4 * time.Second

// patiently listens; where the port is in use it tries again, for a while.
func patiently(ctx context.Context, listen func() error) error {
	for until := time.Now().Add(overlap); ; {
		err := listen()
		if err == nil || !isErrno(err, syscall.EADDRINUSE) || time.Now().After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(firstPause):
		}
	}
}

// refusal says why a node cannot listen at an address.
func refusal(node int, what, where string, err error) *AddressError {
	why := err.Error()
	switch {
	case isErrno(err, syscall.EADDRINUSE):
		why = "the port is in use: another job's, or a daemon that has not ended yet. The key " +
			"port (HDMLP_PORT) chooses others"
	case isErrno(err, syscall.EADDRNOTAVAIL):
		why = "this host does not have that address"
	case isErrno(err, syscall.EACCES):
		why = "ports below 1024 are for root"
	}
	return &AddressError{
		Node:  node,
		Doing: "listen at",
		What:  what,
		Where: where,
		Why:   why,
		cause: err,
	}
}

// isErrno also knows errors that memberlist has made texts of.
func isErrno(err error, e syscall.Errno) bool {
	return errors.Is(err, e) || strings.HasSuffix(err.Error(), e.Error())
}

// Local finds the address of this host that a user means by an interface ("eth0"), an address, a
// network ("10.1.0.0/16"), or a name; "" for "". IPv4 comes before IPv6. Its error is an
// *AddressError of the node.
func Local(node int, what string) (string, error) {
	if what == "" {
		return "", nil
	}
	refuse := func(format string, args ...any) (string, error) {
		return "", &AddressError{
			Node:  node,
			Doing: "use",
			What:  "interface",
			Where: what,
			Why:   fmt.Sprintf(format, args...),
		}
	}
	have, err := interfaces()
	if err != nil {
		return refuse("this host's interfaces: %v", err)
	}
	var wanted []netip.Prefix
	switch network, err := netip.ParsePrefix(what); {
	case err == nil:
		wanted = append(wanted, network.Masked())
	default:
		for _, i := range have {
			if i.name == what {
				if i.down {
					return refuse("that interface is down")
				}
				wanted = append(wanted, netip.PrefixFrom(i.prefix.Addr(), i.prefix.Addr().BitLen()))
			}
		}
		if wanted != nil {
			break
		}
		addresses, err := resolve(what)
		if err != nil {
			return refuse("it is no interface or address, and as a name: %v; this host has %s", err,
				list(have))
		}
		for _, a := range addresses {
			if ip, err := netip.ParseAddr(a); err == nil {
				wanted = append(wanted, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
			}
		}
	}
	for _, four := range []bool{true, false} {
		for _, w := range wanted {
			for _, i := range have {
				own := i.prefix.Addr()
				if i.down || own.Is4() != four {
					continue
				}
				if w.Contains(own) {
					return own.String(), nil
				}
				// all of 127.0.0.0/8 is this host
				if own.IsLoopback() && i.prefix.Masked().Contains(w.Addr()) {
					return w.Addr().String(), nil
				}
			}
		}
	}
	return refuse("it is none of this host's, which has %s", list(have))
}

// own is one address of this host.
type own struct {
	name   string // the interface's
	down   bool
	prefix netip.Prefix
}

func interfaces() ([]own, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out []own
	for _, i := range all {
		addresses, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || p.Addr().IsLinkLocalUnicast() {
				// a link-local address means nothing without its interface, on another host
				continue
			}
			out = append(out, own{i.Name, i.Flags&net.FlagUp == 0, p})
		}
	}
	return out, nil
}

func list(have []own) string {
	var words []string
	for _, i := range have {
		word := i.name + " " + i.prefix.Addr().String()
		if i.down {
			word += " (down)"
		}
		words = append(words, word)
	}
	if len(words) == 0 {
		return "no addresses"
	}
	return strings.Join(words, ", ")
}

// resolve makes IP addresses of a host.
func resolve(host string) ([]string, error) {
	if net.ParseIP(host) != nil {
		return []string{host}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return net.DefaultResolver.LookupHost(ctx, host)
}
