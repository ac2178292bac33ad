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

// isolation describes how a task's environment differs from the host's. The task may have its own
// network, name servers and mounts. A nil isolation means that there are no differences, which is
// the case for most tasks.
//
// A child is created in the namespaces of the thread that forks it. To start a task with its own
// namespaces, a new thread therefore enters the namespaces and then forks. After that, the thread
// exits, because no other goroutine may run on it.
type isolation struct {
	namespace string // path of a network namespace, or "" for the host's
	resolver  []byte // contents of /etc/resolv.conf; nil for the host's
	mounts    []driver.Mount

	// The task's own namespaces, which commands executed in the task also enter. Each field is nil
	// until the task is forked, and remains nil if the task uses the host's namespace.
	network, mount *os.File
}

// places contains the directories needed to set up a task's mounts.
type places struct {
	data    string // the worker's data directory; machines' directories are mounted below it
	scratch string // directory for temporary files
	dir     string // the task's working directory
}

// isolationOf returns the isolation for a task with the given network and mounts, or nil if the
// task needs none. It returns CodeInvalid if a setting is invalid.
func isolationOf(network *driver.Network, mounts []driver.Mount) (*isolation, error) {
	if network == nil && len(mounts) == 0 {
		return nil, nil
	}
	a := &isolation{mounts: mounts}
	for _, m := range mounts {
		if !filepath.IsAbs(m.Source) || !filepath.IsAbs(m.Target) {
			return nil, bourse.Errorf(bourse.CodeInvalid, "mount of %s on %s: both paths must be absolute", bourse.Quoted(m.Source), bourse.Quoted(m.Target))
		}
	}
	if network == nil {
		return a, nil
	}
	if !filepath.IsAbs(network.Namespace) {
		return nil, bourse.Errorf(bourse.CodeInvalid, "network namespace %s: the path must be absolute", bourse.Quoted(network.Namespace))
	}
	a.namespace = network.Namespace
	var err error
	a.resolver, err = resolvConf(network)
	return a, err
}

// resolvConf returns the contents of /etc/resolv.conf for a network, or nil if the network does not
// configure name resolution. See resolv.conf(5).
func resolvConf(n *driver.Network) ([]byte, error) {
	var b strings.Builder
	for _, address := range n.Resolver {
		if _, err := netip.ParseAddr(address); err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "invalid name server %s", bourse.Quoted(address))
		}
		b.WriteString("nameserver " + address + "\n")
	}
	for keyword, words := range map[string][]string{"search": n.Search, "options": n.Options} {
		for _, word := range words {
			if word == "" || strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' }) {
				return nil, bourse.Errorf(bourse.CodeInvalid, "%s %s: use a single word", keyword, bourse.Quoted(word))
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

// changesFiles reports whether the task needs its own mount namespace, because it has mounts or its
// own /etc/resolv.conf.
func (a *isolation) changesFiles() bool { return a.resolver != nil || len(a.mounts) > 0 }

// close closes the files that refer to the namespaces. After that, the kernel removes a namespace
// once the last process in it has exited.
func (a *isolation) close() {
	if a != nil {
		_, _ = a.network.Close(), a.mount.Close() // Close on a nil file only returns an error
	}
}

// errIsolation returns the error for a setup step that failed with err. Its code is CodeInvalid if
// err means that a setting is wrong, and CodeUnavailable otherwise.
func errIsolation(what string, err error) error {
	code := bourse.CodeUnavailable
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrPermission) {
		code = bourse.CodeInvalid
	}
	return bourse.Errorf(code, "%s: %w", what, err)
}
