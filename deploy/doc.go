// Package deploy says what has to be done for an app to be as its owner wants it.
// It is a pure function of what is wanted ([App]) and what is there ([State]). Its result
// is a [Plan], which is data: steps, and which of them must have ended before others begin.
// Strategies, spares, moves and returns to former versions are shapes of plans; package
// deploy/run, which carries them out, knows none of them.
//
// What an interrupted plan has left behind is in the metadata of the machines that it
// made, so that planning again goes on where it was, and nobody keeps anything else.
package deploy
