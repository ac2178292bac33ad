package loopback

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/bourse-dev/bourse"
)

// TokenFile returns the name of the file that contains the token for the API at the given address.
func TokenFile(api netip.AddrPort) string { return api.String() + ".token" }

// secretFile returns the name of the file that contains a cluster's secret.
func secretFile(cluster string) string { return cluster + ".secret" }

// Secret is a secret that the servers of one user's cluster share. The zero value means that there
// is no secret.
type Secret string

// SecretOf returns a cluster's secret, creating it if it does not exist.
func SecretOf(getenv func(string) string, cluster string) (Secret, error) {
	var text string
	err := with(getenv, true, func(s *Store) (err error) {
		text, err = s.Keep(secretFile(cluster))
		return err
	})
	return Secret(text), err
}

// For derives a key for the given purpose from the secret. It returns nil if there is no secret.
func (s Secret) For(purpose string) []byte {
	if s == "" {
		return nil
	}
	key, err := hkdf.Key(sha256.New, []byte(s), nil, "bourse "+purpose, sha256.Size)
	if err != nil {
		panic(err) // the length is a valid constant
	}
	return key
}

// Text returns the key that [Secret.For] derives, in hexadecimal.
func (s Secret) Text(purpose string) string { return hex.EncodeToString(s.For(purpose)) }

// RemoveSecret removes the secret of a cluster that no longer exists.
func RemoveSecret(getenv func(string) string, cluster string) error {
	return remove(getenv, secretFile(cluster))
}

// Token is a token for an API that listens on a loopback address.
type Token struct {
	Text string
	File string // path of the file in which clients find the token

	getenv func(string) string
	name   string
}

// TokenOf returns the token of the API that listens on an address, creating it if it does not
// exist. A server that is killed and restarted gets the same token again.
func TokenOf(getenv func(string) string, api netip.AddrPort) (*Token, error) {
	t := &Token{getenv: getenv, name: TokenFile(api)}
	return t, with(getenv, true, func(s *Store) (err error) {
		t.Text, err = s.Keep(t.name)
		t.File = s.Path(t.name)
		return err
	})
}

// Remove removes the token's file, so that clients can no longer find the token.
func (t *Token) Remove() error { return remove(t.getenv, t.name) }

// RemoveToken removes the token of an API whose server was killed.
func RemoveToken(getenv func(string) string, api netip.AddrPort) error {
	return remove(getenv, TokenFile(api))
}

func remove(getenv func(string) string, name string) error {
	err := with(getenv, false, func(s *Store) error { return s.Remove(name) })
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil // the directory does not exist
	}
	return err
}

// Find returns the token for the API at a URL, and the URL to use with the token. In that URL,
// localhost is replaced by the address to which the token belongs. The token is empty if the API is
// not on loopback or has no token on this host.
func Find(getenv func(string) string, api string) (token, at string) {
	_ = with(getenv, false, func(s *Store) error { // if this fails, the API reports missing credentials
		for _, a := range addresses(api) {
			if text, err := s.Read(TokenFile(a)); err == nil {
				token, at = text, scheme(api)+"://"+a.String()
				return nil
			}
		}
		return nil
	})
	return token, at
}

func scheme(api string) string {
	scheme, _, _ := strings.Cut(api, "://")
	return scheme
}

// addresses returns the loopback addresses to which a URL refers.
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

// with opens the user's directory and calls fn with it.
func with(getenv func(string) string, create bool, fn func(*Store) error) error {
	dir, err := Dir(getenv)
	if err != nil {
		return err
	}
	s, err := Open(dir, create)
	if err != nil {
		return err
	}
	defer s.Close()
	return fn(s)
}
