// Package enroll admits hosts to a cluster, renews their servers' certificates, and
// replaces the keys that servers share.
//
// A broker with an issuer creates invitations, limits what they permit, and counts how
// often each of them is used. A host with an invitation verifies the cluster's CA with
// the fingerprint in the invitation. The host sends a certificate request for each server
// that it will run, and receives the certificates and the settings that all servers
// share. Later, each server renews its certificate by presenting the current one to any
// broker with an issuer.
//
// A broker replaces a shared key in three steps: every server receives the new key, then
// every server encrypts with it, then every server removes the old key. Each step begins
// only after all servers have completed the previous step, so all servers can decrypt
// each other's messages at any time.
package enroll
