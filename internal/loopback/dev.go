package loopback

import (
	"crypto/rand"
	"io"
	"net/netip"
	"strings"
)

// devFile holds the address of the API of the "bourse dev" that was started last.
const devFile = "dev.api"

// SetDev stores the address of the API of a cluster that "bourse dev" runs.
func SetDev(getenv func(string) string, api netip.AddrPort) error {
	return with(getenv, true, func(s *Store) error {
		next := ".new-" + rand.Text()
		err := s.write(next, api.String()+"\n")
		if err == nil {
			err = s.root.Rename(next, devFile)
		}
		if err != nil {
			_ = s.Remove(next) // the first error is the one that counts
		}
		return err
	})
}

// Dev returns the API address of the dev cluster that was stored last, or the zero value if there is none.
func Dev(getenv func(string) string) (api netip.AddrPort) {
	_ = with(getenv, false, func(s *Store) error { // without one there is no cluster
		f, err := s.open(devFile)
		if err != nil {
			return err
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, 64))
		if err == nil {
			api, err = netip.ParseAddrPort(strings.TrimSuffix(string(text), "\n"))
		}
		return err
	})
	if !api.Addr().IsLoopback() {
		return netip.AddrPort{}
	}
	return api
}

// UnsetDev removes the address unless another cluster has stored its own since. A
// cluster that stores its address at the same moment may lose it.
func UnsetDev(getenv func(string) string, api netip.AddrPort) error {
	if Dev(getenv) != api {
		return nil
	}
	return remove(getenv, devFile)
}
