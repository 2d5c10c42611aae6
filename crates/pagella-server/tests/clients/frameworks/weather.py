"""What the model is asked for: little enough for a weak one, and nothing that it would say by itself."""

from typing import Literal

from pydantic import BaseModel, Field

QUESTION = "How is the weather in Paris for the next days?"


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Paris", "Rome"]
    days: int = Field(ge=1, le=7, description="How many days")
    hourly: bool


def get_weather(city: Literal["Paris", "Rome"], days: int) -> str:
    """Tells the weather of a city.

    Args:
        city: The city.
        days: How many days.
    """
    return f"sunny in {city} for {days} days"
