// Package tokens makes the tokens that clients show, lists and revokes them. What is
// kept of one is a grant in the view, which all brokers have: package access
// identifies tokens by it.
package tokens
