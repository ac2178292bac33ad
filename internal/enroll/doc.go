// Package enroll admits hosts to a cluster, renews their servers' certificates, and replaces the
// keys that servers share.
//
// A broker with an issuer makes invitations. It limits what an invitation permits, and
// counts how often each one is used. A host that has an invitation's text recognizes
// the cluster's CA by its fingerprint. It sends a certificate request for each server
// that it will run, and receives the certificates and the settings that all servers
// share. Later, each server renews its certificate at any broker with an issuer, which
// it shows its current certificate.
//
// A broker replaces a shared key in three steps: every server receives the new key, then
// every server encrypts with it, then every server forgets the old one. Each step begins
// when all servers have done the one before, so all of them understand each other at any
// time.
package enroll
