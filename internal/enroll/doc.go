// Package enroll admits hosts to a cluster and renews their servers' certificates.
//
// A broker with an issuer makes invitations, which limit what can be done with them, and
// counts how often each is used. A host that has the text of an invitation recognizes the
// cluster's CA by its fingerprint, sends a certificate request for each server that it will
// run, and receives the certificates and what all servers have in common. Later each server
// renews its certificate by showing the current one to any broker with an issuer.
package enroll
