// Package enroll admits hosts to a cluster and renews their servers' certificates.
//
// A broker with an issuer makes invitations. It limits what an invitation permits, and
// counts how often each one is used. A host that has an invitation's text recognizes
// the cluster's CA by its fingerprint. It sends a certificate request for each server
// that it will run, and receives the certificates and the settings that all servers
// share. Later, each server renews its certificate at any broker with an issuer, which
// it shows its current certificate.
package enroll
