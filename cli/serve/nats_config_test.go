package serve

import (
	"errors"
	"strings"
	"testing"
)

// TestRemoteNATSRequiresCertificates checks that the cluster must have certificates if
// NATS servers are on other hosts. A NATS user and TLS are not sufficient, because
// anyone who may use the NATS account could command the workers.
func TestRemoteNATSRequiresCertificates(t *testing.T) {
	const elsewhere, here = "tls://nats.example.com", "nats://127.0.0.1:4222"
	for _, tt := range []struct {
		name              string
		config            NATSConfig
		insecure, guarded bool
		refused           bool
	}{
		{"loopback", NATSConfig{URLs: []string{here, "nats://localhost"}}, false, false, false},
		{"TLS and a user's credentials", NATSConfig{URLs: []string{elsewhere}, Creds: "user.creds"}, false, false, true},
		{"TLS and a user in the URL", NATSConfig{URLs: []string{"tls://user:secret@nats.example.com"}}, false, false, true},
		{"TLS and a certificate for NATS", NATSConfig{URLs: []string{elsewhere}, TLS: NATSFiles{Cert: "c", Key: "k"}}, false, false, true},
		{"loopback and another host", NATSConfig{URLs: []string{here, elsewhere}}, false, false, true},
		{"the cluster's certificates", NATSConfig{URLs: []string{elsewhere}}, false, true, false},
		{"--insecure", NATSConfig{URLs: []string{"nats://nats.example.com"}}, true, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := errors.Join(tt.config.problems(tt.insecure, tt.guarded)...)
			if refused := err != nil; refused != tt.refused {
				t.Fatalf("got %v, want an error: %v", err, tt.refused)
			}
			if err != nil && (!strings.Contains(err.Error(), "--credentials") || strings.Contains(err.Error(), "secret")) {
				t.Errorf("the error does not mention --credentials, or contains the password: %v", err)
			}
		})
	}
}
