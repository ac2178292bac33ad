package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"

	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/loopback"
)

// serve answers requests on ln as [direct.Serve] does, behind the gate: every
// listener of the program is served by it.
func (s *server) serve(ctx context.Context, ln net.Listener, h http.Handler, config *tls.Config) error {
	proof := s.proof()
	if !onLoopback(ln) {
		proof.Bearer = "" // nor is it shown there
	}
	gate := admission.Gate{Proof: proof, Names: func() []string {
		if s.creds == nil {
			return s.config.Names
		}
		return append(s.creds.Names(), s.config.Names...)
	}}
	return direct.Serve(ctx, ln, gate.Wrap(h), config, s.log)
}

// proof is what this server shows to others, and asks of them.
func (s *server) proof() admission.Proof {
	return admission.Proof{Cluster: s.config.Cluster, Bearer: string(s.secret)}
}

// openSecret finds the secret that servers on loopback show one another. With
// certificates they need none, and --insecure means that they have none.
func (s *server) openSecret() (err error) {
	if s.creds == nil && !s.config.Insecure {
		s.secret, err = loopback.SecretOf(os.Getenv, s.config.Cluster)
	}
	return err
}

// clientToken makes the token of a listener's clients where the operator has
// named none and only this host reaches it; nil elsewhere.
func (s *server) clientToken(ln net.Listener, file string) (*loopback.Token, error) {
	if file != "" || s.config.Insecure || !onLoopback(ln) {
		return nil, nil
	}
	return loopback.TokenOf(os.Getenv, ln.Addr().(*net.TCPAddr).AddrPort())
}

// onLoopback reports whether only this host reaches a listener. Those on NATS
// have addresses that are nowhere.
func onLoopback(ln net.Listener) bool {
	at, ok := ln.Addr().(*net.TCPAddr)
	return ok && at.AddrPort().Addr().Unmap().IsLoopback()
}

// withdraw is the stage that removes a token's file before what asks for it
// ends: the next to listen there must not lose its own. There may be no token.
func withdraw(t *loopback.Token) stage {
	return atEnd("token", func(context.Context) error {
		if t == nil {
			return nil
		}
		return t.Withdraw()
	})
}
