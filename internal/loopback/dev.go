package loopback

import (
	"crypto/rand"
	"io"
	"net/netip"
	"strings"
)

// devFile is the file with the API address of the most recently started "bourse dev".
const devFile = "dev.api"

// SetDev stores the API address of a cluster that "bourse dev" runs.
func SetDev(getenv func(string) string, api netip.AddrPort) error {
	return with(getenv, true, func(s *Store) error {
		next := ".new-" + rand.Text()
		err := s.write(next, api.String()+"\n")
		if err == nil {
			err = s.root.Rename(next, devFile)
		}
		if err != nil {
			_ = s.Remove(next) // the first error matters more
		}
		return err
	})
}

// Dev returns the API address that SetDev stored most recently, or the zero value if none is
// stored.
func Dev(getenv func(string) string) (api netip.AddrPort) {
	_ = with(getenv, false, func(s *Store) error { // no directory means no cluster
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

// UnsetDev removes the stored address if it is api. It does nothing if another cluster has stored
// its own address since then. However, if another cluster stores its address at the same moment,
// UnsetDev may remove that address.
func UnsetDev(getenv func(string) string, api netip.AddrPort) error {
	if Dev(getenv) != api {
		return nil
	}
	return remove(getenv, devFile)
}
