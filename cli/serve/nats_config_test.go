package serve

import (
	"errors"
	"strings"
	"testing"
)

// TestNATSWantsCertificates: anyone who may use the account of a NATS server
// elsewhere could command the workers, so that a NATS user and TLS to the server
// are not enough.
func TestNATSWantsCertificates(t *testing.T) {
	const elsewhere, here = "tls://nats.example.com", "nats://127.0.0.1:4222"
	for _, tt := range []struct {
		name              string
		config            NATSConfig
		insecure, guarded bool
		refused           bool
	}{
		{"loopback", NATSConfig{URLs: []string{here, "nats://localhost"}}, false, false, false},
		{"TLS and a user's credentials", NATSConfig{URLs: []string{elsewhere}, Creds: "user.creds"}, false, false, true},
		{"TLS and a user of the URL", NATSConfig{URLs: []string{"tls://user:secret@nats.example.com"}}, false, false, true},
		{"TLS and a certificate for NATS", NATSConfig{URLs: []string{elsewhere}, TLS: NATSFiles{Cert: "c", Key: "k"}}, false, false, true},
		{"loopback and elsewhere", NATSConfig{URLs: []string{here, elsewhere}}, false, false, true},
		{"certificates of the cluster", NATSConfig{URLs: []string{elsewhere}}, false, true, false},
		{"--insecure", NATSConfig{URLs: []string{"nats://nats.example.com"}}, true, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := errors.Join(tt.config.problems(tt.insecure, tt.guarded)...)
			if refused := err != nil; refused != tt.refused {
				t.Fatalf("got %v, want it refused: %v", err, tt.refused)
			}
			if err != nil && (!strings.Contains(err.Error(), "--credentials") || strings.Contains(err.Error(), "secret")) {
				t.Errorf("the error does not say what to do, or tells the password: %v", err)
			}
		})
	}
}
