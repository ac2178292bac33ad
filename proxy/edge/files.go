package edge

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/bourse-dev/bourse"
)

// Files are the certificates of a directory: NAME.pem (or .crt) with NAME.key beside
// it, and directories with fullchain.pem and privkey.pem, as certbot makes them. The
// names that they are for are those in the certificates. Changes are noticed: it is
// an admission.Watched.
type Files struct {
	dir     string
	current atomic.Pointer[fileCerts]

	mu                   sync.Mutex // held while files are looked at
	usedStamp, seenStamp string     // stamps: of what was read last, and of the last look
}

// fileCerts is what was read at one time. It is never changed.
type fileCerts struct {
	files    []string
	byName   map[string][]*tls.Certificate // also *.example.com
	fallback []*tls.Certificate            // for clients that name no host; nil: none
}

// maxCertFiles bounds what a directory may have: it is looked at every second.
const maxCertFiles = 4096

// OpenFiles reads the certificates of a directory. What is wrong with one is
// CodeInvalid.
func OpenFiles(dir string) (*Files, error) {
	f := &Files{dir: dir}
	pairs, stamp, err := f.pairs()
	if err != nil {
		return nil, err
	}
	certs, err := loadPairs(pairs)
	if err != nil {
		return nil, err
	}
	f.usedStamp, f.seenStamp = stamp, stamp
	f.current.Store(certs)
	return f, nil
}

// Files names the files that are in use.
func (f *Files) Files() []string { return f.current.Load().files }

// Names returns the host names that there are certificates for, sorted.
func (f *Files) Names() []string {
	c := f.current.Load()
	out := make([]string, 0, len(c.byName))
	for name := range c.byName {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Look reads the files again if they have changed, and reports whether what they
// hold is now in use. A change counts once two looks have found the same. While a
// file cannot be used, all that was read before stays in use.
func (f *Files) Look() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pairs, now, err := f.pairs()
	if err != nil {
		now = err.Error()
	}
	settled := now == f.seenStamp
	f.seenStamp = now
	if !settled || now == f.usedStamp {
		return false, nil
	}
	f.usedStamp = now
	if err != nil {
		return false, err
	}
	certs, err := loadPairs(pairs)
	if err != nil {
		return false, err
	}
	f.current.Store(certs)
	return true, nil
}

type certPair struct{ cert, key string }

// pairs finds the certificates of the directory, with what changes when they do.
func (f *Files) pairs() ([]certPair, string, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, "", bourse.Errorf(bourse.CodeInvalid, "read the certificates' directory: %w", err)
	}
	var out []certPair
	for _, e := range entries {
		path := filepath.Join(f.dir, e.Name())
		ext := filepath.Ext(path)
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case ext == ".pem" || ext == ".crt":
			if pair := (certPair{path, strings.TrimSuffix(path, ext) + ".key"}); exists(pair.key) {
				out = append(out, pair)
			}
		default:
			if pair := (certPair{filepath.Join(path, "fullchain.pem"), filepath.Join(path, "privkey.pem")}); exists(pair.cert) && exists(pair.key) {
				out = append(out, pair)
			}
		}
	}
	if len(out) > maxCertFiles {
		return nil, "", bourse.Errorf(bourse.CodeInvalid, "%s has %d certificates, at most %d", f.dir, len(out), maxCertFiles)
	}
	var b strings.Builder
	for _, p := range out {
		for _, name := range []string{p.cert, p.key} {
			if info, err := os.Stat(name); err == nil {
				fmt.Fprintf(&b, "%s %d %d;", name, info.Size(), info.ModTime().UnixNano())
			}
		}
	}
	return out, b.String(), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist) && !isNotDir(err)
}

func isNotDir(err error) bool {
	info, statErr := errors.AsType[*fs.PathError](err)
	return statErr && info.Err.Error() == "not a directory"
}

// load reads pairs.
func loadPairs(pairs []certPair) (*fileCerts, error) {
	out := &fileCerts{byName: map[string][]*tls.Certificate{}}
	for _, p := range pairs {
		cert, err := tls.LoadX509KeyPair(p.cert, p.key)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "certificate %s: %w", p.cert, err)
		}
		names := slices.Clone(cert.Leaf.DNSNames)
		for _, ip := range cert.Leaf.IPAddresses {
			names = append(names, ip.String())
		}
		for _, name := range names {
			name = strings.ToLower(name)
			out.byName[name] = append(out.byName[name], &cert)
		}
		out.files = append(out.files, p.cert, p.key)
		out.fallback = append(out.fallback, &cert)
	}
	for _, list := range out.byName { // of several for one name the one that is good for longest
		slices.SortStableFunc(list, func(a, b *tls.Certificate) int { return b.Leaf.NotAfter.Compare(a.Leaf.NotAfter) })
	}
	if len(out.fallback) > 1 {
		out.fallback = out.fallback[:1]
	}
	return out, nil
}

// find returns the certificate for a name that the client can use, nil for none. A
// client that names no host gets the first.
func (f *Files) find(hello *tls.ClientHelloInfo, name string) *tls.Certificate {
	c := f.current.Load()
	list := c.byName[name]
	if _, domain, ok := strings.Cut(name, "."); len(list) == 0 && ok {
		list = c.byName["*."+domain]
	}
	if name == "" {
		list = c.fallback
	}
	for _, cert := range list {
		if hello.SupportsCertificate(cert) == nil {
			return cert
		}
	}
	if len(list) > 0 {
		return list[0] // the client refuses it, and says why
	}
	return nil
}
