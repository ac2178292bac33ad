package process

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// apart is what a task sees otherwise than the host: its network, and
// directories and name servers in places of the host's. Most tasks have none.
//
// A child is born in the namespaces of the thread that forks it, so such a
// task is forked by a thread of its own, which enters them first and ends
// afterwards: no one else may run on it.
type apart struct {
	namespace string // path of a network namespace, "" for the host's
	resolver  []byte // content of /etc/resolv.conf, nil for the host's
	mounts    []driver.Mount

	// The task's own namespaces, for what is executed beside it; nil until it
	// has been forked, or when they are the host's.
	network, mount *os.File
}

// places are directories that a task's own view of the files depends on.
type places struct {
	data    string // the worker's: below it is mounted what machines have
	scratch string // for a file of a moment
	dir     string // the task's
}

// apartOf returns what a task sees otherwise, nil for nothing. CodeInvalid for
// what can be no such thing.
func apartOf(network *driver.Network, mounts []driver.Mount) (*apart, error) {
	if network == nil && len(mounts) == 0 {
		return nil, nil
	}
	a := &apart{mounts: mounts}
	for _, m := range mounts {
		if !filepath.IsAbs(m.Source) || !filepath.IsAbs(m.Target) {
			return nil, bourse.Errorf(bourse.CodeInvalid, "mount of %s on %s: both paths have to be absolute", bourse.Quoted(m.Source), bourse.Quoted(m.Target))
		}
	}
	if network == nil {
		return a, nil
	}
	if !filepath.IsAbs(network.Namespace) {
		return nil, bourse.Errorf(bourse.CodeInvalid, "network namespace %s: the path has to be absolute", bourse.Quoted(network.Namespace))
	}
	a.namespace = network.Namespace
	var err error
	a.resolver, err = resolvConf(network)
	return a, err
}

// resolvConf returns the content of /etc/resolv.conf, nil when the network says
// nothing of it. See resolv.conf(5).
func resolvConf(n *driver.Network) ([]byte, error) {
	var b strings.Builder
	for _, address := range n.Resolver {
		if _, err := netip.ParseAddr(address); err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "name server %s is no address", bourse.Quoted(address))
		}
		b.WriteString("nameserver " + address + "\n")
	}
	for keyword, words := range map[string][]string{"search": n.Search, "options": n.Options} {
		for _, word := range words {
			if word == "" || strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' }) {
				return nil, bourse.Errorf(bourse.CodeInvalid, "%s %s: not one word", keyword, bourse.Quoted(word))
			}
		}
	}
	if len(n.Search) > 0 {
		b.WriteString("search " + strings.Join(n.Search, " ") + "\n")
	}
	if len(n.Options) > 0 {
		b.WriteString("options " + strings.Join(n.Options, " ") + "\n")
	}
	if b.Len() == 0 {
		return nil, nil
	}
	return []byte(b.String()), nil
}

// ownFiles reports whether the task sees other files than the host.
func (a *apart) ownFiles() bool { return a.resolver != nil || len(a.mounts) > 0 }

// close returns the namespaces back, which are gone with their last process.
func (a *apart) close() {
	if a != nil {
		_, _ = a.network.Close(), a.mount.Close() // nil ones say so and do nothing
	}
}

// errApart says what it means that something of the host is not as needed.
func errApart(what string, err error) error {
	code := bourse.CodeUnavailable
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrPermission) {
		code = bourse.CodeInvalid
	}
	return bourse.Errorf(code, "%s: %w", what, err)
}
