package execwatch

// spare keeps values that nobody needs any more, to be used again: what programs do by the thousand in
// a second makes no garbage then.
type spare[T any] struct{ list []*T }

// maxSpare bounds what is kept. More are in use at a time only where many events wait.
const maxSpare = 1 << 10

// take returns a value with whatever is in it.
func (s *spare[T]) take() *T {
	n := len(s.list)
	if n == 0 {
		return new(T)
	}
	v := s.list[n-1]
	s.list = s.list[:n-1]
	return v
}

func (s *spare[T]) give(v *T) {
	if len(s.list) < maxSpare {
		s.list = append(s.list, v)
	}
}
