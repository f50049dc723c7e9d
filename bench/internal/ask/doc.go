// Package ask has well-behaved clients that check every answer: each question
// has values of its own, and the answer must be what the model makes of them.
// The attack and soak programs run them beside what they do to a server.
package ask
