package ship

func play(role string) int { return 1 }
