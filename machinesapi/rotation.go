package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// SharedKey names a key that several servers share.
type SharedKey string

// The shared keys.
const (
	KeyGossip  SharedKey = "gossip"  // encrypts gossip; every server has the key
	KeySecrets SharedKey = "secrets" // encrypts the secrets of apps; all brokers have the key
	KeyCA      SharedKey = "ca"      // signs the issuers of servers' certificates; every server has the CA's certificate, and brokers have an issuer's key
)

// RotationStep is a step of a key's rotation.
type RotationStep string

// The steps of a rotation, in order. Each step begins once all servers have completed the previous
// step.
const (
	RotationCheck  RotationStep = "check"  // all servers must answer
	RotationAdd    RotationStep = "add"    // the servers receive the new key, but still encrypt with the old one
	RotationUse    RotationStep = "use"    // the servers encrypt with the new key
	RotationRemove RotationStep = "remove" // the servers remove the old key
)

// Rotate is the body of a request for the next step of a rotation.
type Rotate struct {
	Start  bool   `json:"start,omitempty"`  // start a rotation unless one is in progress
	CA     string `json:"ca,omitempty"`     // the new CA's certificate in PEM, if the key is a CA
	Issuer string `json:"issuer,omitempty"` // certificate and key, in PEM, of an issuer of the new CA

	KeepOld bool `json:"keep_old,omitempty"` // do not remove the old key
}

// Rotation is the result of one step of a rotation.
type Rotation struct {
	Step    RotationStep     `json:"step"`
	Started bool             `json:"started,omitempty"` // this step began a new rotation
	Done    bool             `json:"done"`              // the rotation is complete
	Blocked string           `json:"blocked,omitempty"` // why the next step cannot begin yet; an operator must solve the problem first
	Servers []RotationServer `json:"servers"`           // the servers that have the key, sorted by role and ID
}

// RotationServer describes whether a server has completed a step.
type RotationServer struct {
	ID    bourse.WorkerID `json:"id"`
	Role  bourse.Role     `json:"role"`
	OK    bool            `json:"ok"`              // the server has completed the step
	Error string          `json:"error,omitempty"` // why the server has not completed the step
}

// Rotate carries out the next step of a key's rotation on all servers. Repeat the call until Done is set in the result.
// If in.Start is set, Rotate starts a rotation unless one is in progress. Errors: failed_precondition if the cluster
// has no such key.
func (o Operator) Rotate(ctx context.Context, key SharedKey, in Rotate) (Rotation, error) {
	return ask[Rotation](ctx, o.c, call{method: http.MethodPost, path: path("keys", string(key), "rotation"), in: in})
}
