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

// Listen listens on host and port of the network, or of the system's if network is nil; what names
// the purpose in errors. While the port is in use it retries for some seconds. Its error is an
// *AddressError of the node.
func Listen(ctx context.Context, network Network, node int, what, host string,
	port int,
) (l net.Listener, err error) {
	at := net.JoinHostPort(host, strconv.Itoa(port))
	err = ListenRetrying(ctx, func() error {
		l, err = OrSystem(network).Listen(at)
		return err
	})
	if err != nil {
		return nil, ListenError(node, what, at, err)
	}
	return l, nil
}

// overlap is how long a port may stay in use by the previous run of a job: a launcher that restarts
// a job ends its processes, but does not wait for their daemons to exit.
const overlap = 4 * time.Second

const retryPause = 50 * time.Millisecond // between attempts to listen

// ListenRetrying calls listen, and retries for a while if the port is in use.
func ListenRetrying(ctx context.Context, listen func() error) error {
	for until := time.Now().Add(overlap); ; {
		err := listen()
		if err == nil || !IsErrno(err, syscall.EADDRINUSE) || time.Now().After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryPause):
		}
	}
}

// ListenError returns the error for an address on which a node cannot listen.
func ListenError(node int, what, where string, err error) *AddressError {
	why := err.Error()
	switch {
	case IsErrno(err, syscall.EADDRINUSE):
		why = "the port is in use by another job, or by a daemon that has not exited yet; set " +
			"port (HDMLP_PORT) to use other ports"
	case IsErrno(err, syscall.EADDRNOTAVAIL):
		why = "this host has no such address"
	case IsErrno(err, syscall.EACCES):
		why = "ports below 1024 need root privileges"
	}
	return &AddressError{
		Node:  node,
		Doing: "listen on",
		What:  what,
		Where: where,
		Why:   why,
		cause: err,
	}
}

// IsErrno reports whether err is e, even if memberlist has reduced it to its text.
func IsErrno(err error, e syscall.Errno) bool {
	return errors.Is(err, e) || strings.HasSuffix(err.Error(), e.Error())
}

// Local returns this host's address for what a user gives: an interface ("eth0"), an address, a
// network ("10.1.0.0/16") or a host name; "" for "". It prefers IPv4. Its error is an *AddressError
// of the node.
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
		return refuse("listing this host's interfaces failed: %v", err)
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
		addresses, err := Resolve(what)
		if err != nil {
			var why error = err
			if unknown := (*net.DNSError)(nil); errors.As(err, &unknown) {
				why = errors.New(unknown.Err) // without the name and the server
			}
			return refuse("it is no interface or address of this host, and not known as a host name "+
				"(%v); this host has %s: set the key interface to one of these or to their network",
				why, list(have))
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
				// all of 127.0.0.0/8 is local to this host
				if own.IsLoopback() && i.prefix.Masked().Contains(w.Addr()) {
					return w.Addr().String(), nil
				}
			}
		}
	}
	return refuse("this host has no such address; it has %s: set the key interface to one of these "+
		"or to their network", list(have))
}

// hostAddress is one address of this host.
type hostAddress struct {
	name   string // the interface's
	down   bool
	prefix netip.Prefix
}

func interfaces() ([]hostAddress, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out []hostAddress
	for _, i := range all {
		addresses, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || p.Addr().IsLinkLocalUnicast() {
				// other hosts cannot use a link-local address, which is relative to an interface
				continue
			}
			out = append(out, hostAddress{i.Name, i.Flags&net.FlagUp == 0, p})
		}
	}
	return out, nil
}

func list(have []hostAddress) string {
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

// Resolve returns the IP addresses of a host.
func Resolve(host string) ([]string, error) {
	if net.ParseIP(host) != nil {
		return []string{host}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return net.DefaultResolver.LookupHost(ctx, host)
}

// SplitAddress splits host:port; the host may be empty.
func SplitAddress(s string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, errors.New("must be host:port")
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, errors.New("the port must be in [0, 65535]")
	}
	return host, int(n), nil
}
