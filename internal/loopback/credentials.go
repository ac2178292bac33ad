package loopback

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"net/url"

	"github.com/bourse-dev/bourse"
)

// TokenFile returns the name of the file with the token of the API at an
// address.
func TokenFile(api netip.AddrPort) string { return api.String() + ".token" }

// secretFile returns the name of the file with the secret of a cluster.
func secretFile(cluster string) string { return cluster + ".secret" }

// Secret is what the servers of one cluster of one user share. The zero value
// is none.
type Secret string

// SecretOf returns the secret of a cluster, which the first server makes.
func SecretOf(getenv func(string) string, cluster string) (Secret, error) {
	var text string
	err := with(getenv, true, func(s *Store) (err error) {
		text, err = s.Keep(secretFile(cluster))
		return err
	})
	return Secret(text), err
}

// For derives what is shown or used for one purpose, so that it is good for
// nothing else: nil when there is no secret.
func (s Secret) For(purpose string) []byte {
	if s == "" {
		return nil
	}
	key, err := hkdf.Key(sha256.New, []byte(s), nil, "bourse "+purpose, sha256.Size)
	if err != nil {
		panic(err) // for lengths that are not ours
	}
	return key
}

// Text is For as a text.
func (s Secret) Text(purpose string) string { return hex.EncodeToString(s.For(purpose)) }

// Forget removes the secret of a cluster that no longer exists.
func Forget(getenv func(string) string, cluster string) error {
	return forget(getenv, secretFile(cluster))
}

// Token is the token of an API on loopback.
type Token struct {
	Text string
	File string // where clients find it

	getenv func(string) string
	name   string
}

// TokenOf makes the token of the API that listens at an address. A server that
// was killed finds its own again there.
func TokenOf(getenv func(string) string, api netip.AddrPort) (*Token, error) {
	t := &Token{getenv: getenv, name: TokenFile(api)}
	return t, with(getenv, true, func(s *Store) (err error) {
		t.Text, err = s.Keep(t.name)
		t.File = s.Path(t.name)
		return err
	})
}

// Withdraw removes the token's file: no client finds the token any more.
func (t *Token) Withdraw() error { return forget(t.getenv, t.name) }

// ForgetToken removes what an API that was killed has left.
func ForgetToken(getenv func(string) string, api netip.AddrPort) error {
	return forget(getenv, TokenFile(api))
}

func forget(getenv func(string) string, name string) error {
	err := with(getenv, false, func(s *Store) error { return s.Remove(name) })
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil // the directory is gone, too
	}
	return err
}

// Find returns the token for the API with a URL, or "": it is not on loopback,
// or has none here.
func Find(getenv func(string) string, api string) (token string) {
	_ = with(getenv, false, func(s *Store) error { // without credentials the API returns an error
		for _, a := range addresses(api) {
			if text, err := s.Read(TokenFile(a)); err == nil {
				token = text
				return nil
			}
		}
		return nil
	})
	return token
}

// addresses returns the loopback addresses that a URL means.
func addresses(api string) []netip.AddrPort {
	u, err := url.Parse(api)
	if err != nil {
		return nil
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	hosts := []string{u.Hostname()}
	if hosts[0] == "localhost" {
		hosts = []string{"127.0.0.1", "::1"}
	}
	var out []netip.AddrPort
	for _, host := range hosts {
		if a, err := netip.ParseAddrPort(net.JoinHostPort(host, port)); err == nil && a.Addr().IsLoopback() {
			out = append(out, a)
		}
	}
	return out
}

// with does something with the directory.
func with(getenv func(string) string, create bool, do func(*Store) error) error {
	dir, err := Dir(getenv)
	if err != nil {
		return err
	}
	s, err := Open(dir, create)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(s)
}
