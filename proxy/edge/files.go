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

// Files contains the certificates in a directory. A certificate is either a file NAME.pem or NAME.crt with its key in
// NAME.key, or a subdirectory that contains fullchain.pem and privkey.pem, as created by certbot. Host names are taken
// from the certificates. Files implements admission.Watched, so that changed files are reloaded.
type Files struct {
	dir     string
	current atomic.Pointer[fileCerts]

	mu                   sync.Mutex // held while files are read
	usedStamp, seenStamp string     // state of the files in use, and state found by the latest check
}

// fileCerts is an immutable set of loaded certificates.
type fileCerts struct {
	files    []string
	byName   map[string][]*tls.Certificate // keys may be wildcards such as *.example.com
	fallback []*tls.Certificate            // for clients that send no host name; empty if there are no certificates
}

// maxCertFiles is the maximum number of certificates. The number is limited because the directory is scanned every
// second.
const maxCertFiles = 4096

// OpenFiles loads the certificates in a directory. If a certificate cannot be loaded, it returns
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

// Files returns the paths of the files that are in use.
func (f *Files) Files() []string { return f.current.Load().files }

// Names returns the host names in all certificates, sorted.
func (f *Files) Names() []string {
	c := f.current.Load()
	out := make([]string, 0, len(c.byName))
	for name := range c.byName {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Look reloads the files if they have changed, and reports whether it has loaded new contents. Because files may be
// written in several steps, Look loads a change only once two consecutive calls have found the files in the same
// state. If a file cannot be loaded, the previous certificates remain in use.
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

// pairs returns the paths of the certificates and keys in the directory, and a string that changes whenever one of
// the files changes.
func (f *Files) pairs() ([]certPair, string, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, "", bourse.Errorf(bourse.CodeInvalid, "read certificate directory: %w", err)
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
		return nil, "", bourse.Errorf(bourse.CodeInvalid, "%s has %d certificates; the maximum is %d", f.dir, len(out), maxCertFiles)
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

// loadPairs loads certificates and their keys from files.
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
	for _, list := range out.byName { // certificates that expire later come first
		slices.SortStableFunc(list, func(a, b *tls.Certificate) int { return b.Leaf.NotAfter.Compare(a.Leaf.NotAfter) })
	}
	if len(out.fallback) > 1 {
		out.fallback = out.fallback[:1]
	}
	return out, nil
}

// find returns a certificate for a host name, preferably one that the client supports. If name is empty, it returns a
// fallback certificate. It returns nil if there is no certificate for the name.
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
		return list[0] // the client will reject this certificate with a meaningful alert
	}
	return nil
}
