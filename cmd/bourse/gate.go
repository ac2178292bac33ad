package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
)

// serve answers requests on ln as [direct.Serve] does, behind the gate: every
// listener of the program is served by it.
func (s *server) serve(ctx context.Context, ln net.Listener, h http.Handler, config *tls.Config) error {
	_, tcp := ln.Addr().(*net.TCPAddr)
	gate := admission.Gate{AnyHost: !tcp, Proof: s.proof(), Names: func() []string {
		if s.creds == nil {
			return s.config.Names
		}
		return append(s.creds.Names(), s.config.Names...)
	}}
	return direct.Serve(ctx, ln, gate.Wrap(h), config, s.log)
}

// proof is what this server shows to others, and asks of them.
func (s *server) proof() admission.Proof { return admission.Proof{Cluster: s.config.Cluster} }
