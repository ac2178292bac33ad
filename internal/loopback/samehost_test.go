package loopback_test

import (
	"net"
	"testing"

	"github.com/bourse-dev/bourse/internal/loopback"
)

func TestHere(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "127.8.9.1:1": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true,
		"192.0.2.1:80": false, "[2001:db8::1]:80": false, "localhost:80": false, "127.0.0.1": false, "": false,
	} {
		if got := loopback.OnThisHost(address); got != want {
			t.Errorf("OnThisHost(%q) = %v, want %v", address, got, want)
		}
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		ip := a.(*net.IPNet).IP
		if ip.IsLinkLocalUnicast() {
			continue // such an address is valid only together with its interface
		}
		if address := net.JoinHostPort(ip.String(), "80"); !loopback.OnThisHost(address) {
			t.Errorf("OnThisHost(%s) = false for an address of this host", address)
		}
	}
}

func TestID(t *testing.T) {
	if id := loopback.HostID(); id == "" || id != loopback.HostID() {
		t.Errorf("got %q, want an ID that does not change", id)
	}
}
