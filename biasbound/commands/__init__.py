"""What the command line does, beside `biasbound data`: studies, single emulators and files, noise schedules."""

__all__: list[str] = []
